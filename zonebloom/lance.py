"""Check Lance's own bloom filter indexes; `Index.export_lance` writes them, `build_index(adopt="lance")` reads them."""

from zonebloom.indexing.lance_audit import LanceAudit, audit_lance

__all__ = ["LanceAudit", "audit_lance"]
