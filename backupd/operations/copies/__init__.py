"""Copies of a backup on their targets: written beside each other, spooled until then, published last."""
