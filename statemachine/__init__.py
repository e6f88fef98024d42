"""The metadata that the log is about: its records, who decides them (controller), who keeps them (store), who asks.

    client ─► service ─► controller ─► overlay, then log            AdminClient, AdminServicer, Controller
                                          │ committed
    queries ◄─ store (SQLite) ◄─ machine ◄┘                         MetadataStore, MetadataMachine

What is committed lives in SQLite and nowhere else; what the active controller has written and nobody has committed yet
lives in its overlay.
"""
