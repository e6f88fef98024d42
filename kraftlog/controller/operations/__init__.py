"""From a request and the latest metadata to records and an answer. Nothing here changes anything."""
