"""The pages and the JSON that the daemon serves: read-only, from the catalogue, without anything from elsewhere."""
