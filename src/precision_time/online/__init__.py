"""Online: how long a run still takes, from a prediction and the steps so far."""
