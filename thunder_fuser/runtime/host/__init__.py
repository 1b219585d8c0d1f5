"""The backend for machines without a card: the same source through the system's C++ compiler."""
