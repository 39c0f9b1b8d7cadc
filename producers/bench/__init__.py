"""`fleet bench`: what the fleet costs and how fast it takes over, measured on this machine."""
