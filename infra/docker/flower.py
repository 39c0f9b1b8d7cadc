# Flower's configuration in the image; see workers/flower.py.
from workers.flower import login, only_to_look

basic_auth = login()
only_to_look()
