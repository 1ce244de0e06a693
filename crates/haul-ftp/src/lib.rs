//! FTP and FTPS.
