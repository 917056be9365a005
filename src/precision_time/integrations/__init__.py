"""Other tools' files and settings: their logs as measurements, their commands and manifests as requests."""
