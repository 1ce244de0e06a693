//! What servers send, as text that is not to be trusted: parsed, bounded, checked. No I/O.
