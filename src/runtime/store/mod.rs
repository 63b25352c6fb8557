//! What must survive a restart: one directory per object, one JSON record in it.
