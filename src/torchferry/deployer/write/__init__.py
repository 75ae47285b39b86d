"""The files of a folder: graphs, configurations, the card."""
