"""Many spellings of one thing become one."""
