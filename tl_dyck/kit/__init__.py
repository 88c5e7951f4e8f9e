"""What any program needs: files, records, processes, the screen, checks, errors, names for plugs.

Knows no language, no model and no torch tensor's meaning; everything above may import it, and it
imports nothing above.
"""
