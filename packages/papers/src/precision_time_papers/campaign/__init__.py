"""Campaigns: training jobs that are measured on a Ray cluster, the most informative first."""
