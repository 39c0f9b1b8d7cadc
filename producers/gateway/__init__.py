"""The gateway: the fleet's doors over HTTP, for services, AG-UI clients and chat pages.

It only submits and watches: turns run in workers, so any number of gateways, and restarts of
them, change nothing for a running turn.
"""
