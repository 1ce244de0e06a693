//! The client: lanes, requests, files.
