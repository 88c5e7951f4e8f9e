"""tl_dyck."""
