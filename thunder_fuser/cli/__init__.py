"""The command line `thunder-fuser`: one module a command, and what they print with. Nothing else imports this package."""
