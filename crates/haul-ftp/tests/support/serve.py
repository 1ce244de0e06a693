"""A pyftpdlib of the test's own: PORT ROOT CONNECTIONS [CERTIFICATE-AND-KEY]. MLSD, MFMT, user "me",
at most so many connections from an address (0: any number)."""
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler, TLS_FTPHandler
from pyftpdlib.servers import FTPServer

port, root, connections = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
handler = FTPHandler
if len(sys.argv) > 4:
    handler = TLS_FTPHandler
    handler.certfile = sys.argv[4]
    handler.tls_control_required = True
    handler.tls_data_required = True
authorizer = DummyAuthorizer()
authorizer.add_user("me", "correct horse", root, perm="elradfmwMT")
handler.authorizer = authorizer
server = FTPServer(("127.0.0.1", port), handler)
server.max_cons_per_ip = connections
server.serve_forever()
