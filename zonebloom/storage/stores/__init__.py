"""Where index files lie: a folder on disk or a prefix of an object store, behind one protocol (`store.Store`)."""
