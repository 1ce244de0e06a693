"""A pyftpdlib of the test's own: PORT ROOT [CERTIFICATE-AND-KEY]. MLSD, MFMT, user "me"."""
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler, TLS_FTPHandler
from pyftpdlib.servers import FTPServer

port, root = int(sys.argv[1]), sys.argv[2]
handler = FTPHandler
if len(sys.argv) > 3:
    handler = TLS_FTPHandler
    handler.certfile = sys.argv[3]
    handler.tls_control_required = True
    handler.tls_data_required = True
authorizer = DummyAuthorizer()
authorizer.add_user("me", "correct horse", root, perm="elradfmwMT")
handler.authorizer = authorizer
FTPServer(("127.0.0.1", port), handler).serve_forever()
