"""What a run costs: prices of instances with date and source, and what is paid beside the devices."""
