"""Printing: from kernel plans to CUDA C++. `kernel.emit` is the way in; nothing here decides."""
