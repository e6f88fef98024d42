"""The metadata that the log is about: its records, the controller that decides, the store that keeps them, the readers.

    client ─► service ─► controller ─► overlay, then log            AdminClient, AdminServicer, Controller
                                          │ committed
    queries ◄─ store (SQLite) ◄─ machine ◄┘                         MetadataStore, MetadataMachine

What is committed lives in SQLite and nowhere else; what the active controller has written and is not committed
lives in its overlay.
"""
