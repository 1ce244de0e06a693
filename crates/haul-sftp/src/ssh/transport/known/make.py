#!/usr/bin/python3
"""Makes exchanges.txt and packets.txt: what asyncssh computes for given secrets and keys.

Debian 12, python3-asyncssh 2.10.1:

    /usr/bin/python3 make.py exchanges > exchanges.txt
    /usr/bin/python3 make.py packets > packets.txt

The output is always the same. A record is a block of lines `name value`, bytes in hexadecimal. The
methods that asyncssh 2.10.1 does not have are in mlkem.txt, by mlkem_test.go.
"""

import random
import sys
import warnings

warnings.filterwarnings('ignore')

import asyncssh.crypto  # noqa: E402
from asyncssh import kex_dh  # noqa: E402
from asyncssh.encryption import get_encryption, get_encryption_params  # noqa: E402
from asyncssh.kex import get_kex  # noqa: E402
from asyncssh.packet import MPInt, String  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec, x25519  # noqa: E402

EXCHANGES = {
    b'curve25519-sha256': 32,
    b'curve25519-sha256@libssh.org': 32,
    b'ecdh-sha2-nistp256': 32,
    b'ecdh-sha2-nistp384': 48,
    b'ecdh-sha2-nistp521': 66,
    b'diffie-hellman-group14-sha256': 64,
    b'diffie-hellman-group16-sha512': 64,
    b'diffie-hellman-group18-sha512': 64,
}
CURVES = {32: ec.SECP256R1, 48: ec.SECP384R1, 66: ec.SECP521R1}
CIPHERS = [b'aes128-ctr', b'aes192-ctr', b'aes256-ctr']
AEADS = [b'aes128-gcm@openssh.com', b'aes256-gcm@openssh.com', b'chacha20-poly1305@openssh.com']
MACS = [name + etm for name in (b'hmac-sha2-256', b'hmac-sha2-512', b'hmac-sha1')
        for etm in (b'', b'-etm@openssh.com')]

# Anything will do: they only go into the hash.
VERSIONS = [b'SSH-2.0-haul_known_answers', b'SSH-2.0-asyncssh_known_answers']
OFFERS = [b'\x14client offer', b'\x14server offer, longer']
HOST_KEY = String(b'ssh-ed25519') + String(bytes(range(32)))
SESSION_ID = bytes(range(100, 164))


class Connection:
    """What asyncssh's key exchanges ask of a connection."""

    logger = None

    def __init__(self, client):
        self.client = client

    def is_client(self):
        return self.client

    def get_hash_prefix(self):
        return b''.join(map(String, [VERSIONS[0], VERSIONS[1], OFFERS[0], OFFERS[1]]))


def take_secret(kex, name, secret):
    """Gives an exchange its secret, which asyncssh draws; returns the public value."""
    if name.startswith(b'diffie'):
        kex._x = int.from_bytes(secret, 'big')
        kex._e = pow(kex._g, kex._x, kex._p)
        return MPInt(kex._e)[4:]
    if name.startswith(b'curve25519'):
        key = x25519.X25519PrivateKey.from_private_bytes(secret)
    else:
        key = ec.derive_private_key(int.from_bytes(secret, 'big'), CURVES[len(secret)]())
    kex._priv._priv_key = key
    return kex._priv.get_public()


def exchange(name, draw):
    """The fields of a record, or None for a secret that is none of the curve's."""
    length = EXCHANGES[name]
    secret, other = draw(length), draw(length)
    client, server = get_kex(Connection(True), name), get_kex(Connection(False), name)
    ours = take_secret(client, name, secret)
    if name.startswith(b'diffie'):
        server._e = client._e
        kex_dh.randrange = lambda *_: int.from_bytes(other, 'big')
        shared = server._compute_server_shared()
        theirs = server._format_server_key()[4:]
    else:
        theirs = take_secret(server, name, other)
        server._server_pub, server._client_pub = theirs, ours
        shared = server._compute_server_shared()
    digest = server._compute_hash(HOST_KEY, shared)
    fields = [('name', name.decode()), ('secret', secret), ('ours', ours), ('theirs', theirs),
              ('shared', MPInt(shared)), ('hash', digest)]
    for letter in b'ABCDEF':
        key = server.compute_key(shared, digest, bytes([letter]), SESSION_ID, 100)
        fields.append((f'key-{letter:c}', key))
    return shared, fields


def exchanges():
    yield [('client-version', VERSIONS[0].decode()), ('server-version', VERSIONS[1].decode()),
           ('client-offer', OFFERS[0]), ('server-offer', OFFERS[1]), ('host-key', HOST_KEY),
           ('session-id', SESSION_ID)]
    for name in EXCHANGES:
        rng = random.Random(name)

        def draw(length):
            value = rng.randbytes(length)
            # Within P-521.
            return bytes([0, value[1] & 0x7f]) + value[2:] if length == 66 else value

        # A secret whose first bit is set has a zero before it in an mpint; one that begins with a
        # zero byte loses that.
        size = {b'diffie-hellman-group14-sha256': 256, b'diffie-hellman-group16-sha512': 512,
                b'diffie-hellman-group18-sha512': 1024}.get(name, EXCHANGES[name])
        wanted = {'high bit': lambda k: k.bit_length() == size * 8,
                  'leading zero': lambda k: k.bit_length() <= size * 8 - 8}
        if size == 66:
            wanted = {'leading zero': lambda k: k.bit_length() <= 512}
        elif size >= 512:
            del wanted['leading zero']
        while wanted:
            shared, fields = exchange(name, draw)
            for case in [case for case, fits in wanted.items() if fits(shared)]:
                del wanted[case]
                yield fields


def packets():
    suites = [(aead, b'none') for aead in AEADS]
    suites += [(cipher, mac) for cipher in CIPHERS for mac in MACS]
    for cipher, mac in suites:
        rng = random.Random(cipher + mac)
        key_size, iv_size, _, mac_size, _, etm = get_encryption_params(cipher, mac)
        key, mac_key = rng.randbytes(key_size), rng.randbytes(mac_size)
        # The counter of GCM and CTR carries.
        iv = (rng.randbytes(iv_size)[:-3] + b'\xff\xff\xfe') if iv_size else b''
        encryption = get_encryption(cipher, key, iv, mac, mac_key, etm)
        yield [('cipher', cipher.decode()), ('mac', mac.decode()), ('iv', iv), ('key', key),
               ('mac-key', mac_key)]
        # Numbers begin anew at 2^32.
        for number, length in zip([0xfffffffe, 0xffffffff, 0, 1], [1, 16, 60, 200]):
            block = 8 if cipher.startswith(b'chacha') else 16
            counted = 1 + length + (0 if etm else 4)
            padding = block - counted % block
            padding += block if padding < 4 else 0
            payload = rng.randbytes(length)
            body = bytes([padding]) + payload + rng.randbytes(padding)
            header = len(body).to_bytes(4, 'big')
            sealed, tag = encryption.encrypt_packet(number, header, body)
            yield [('number', str(number)), ('plain', header + body), ('sealed', sealed + tag)]


for record in {'exchanges': exchanges, 'packets': packets}[sys.argv[1]]():
    for field, value in record:
        print(field, value.hex() if isinstance(value, bytes) else value)
    print()
