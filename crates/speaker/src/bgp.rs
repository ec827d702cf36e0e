//! BGP: the messages, the session with one peer, and the routes that the peer is told.
