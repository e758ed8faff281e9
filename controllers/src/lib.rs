//! Pure planners: view and actions, no I/O.
