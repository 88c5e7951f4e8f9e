"""The built-in plugs of tl_dyck, registered by entry point exactly as a third party's would be."""
