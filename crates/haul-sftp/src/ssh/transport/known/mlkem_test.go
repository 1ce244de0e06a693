// Makes mlkem.txt: what Go's x/crypto/ssh answers, as a server, to a client's half of
// mlkem768x25519-sha256. It takes the client's half from the file that is there. Go 1.24 or later:
//
//	go mod download golang.org/x/crypto@v0.45.0
//	cp -r $(go env GOMODCACHE)/golang.org/x/crypto@v0.45.0 /tmp/crypto && chmod -R u+w /tmp/crypto
//	cp mlkem_test.go /tmp/crypto/ssh/known_answers_test.go
//	(cd /tmp/crypto && KNOWN=$OLDPWD/mlkem.txt go test -run KnownAnswers ./ssh)
//
// Each run draws other secrets for the server. The client's secret was drawn by aws-lc.

package ssh

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestMakeKnownAnswers(t *testing.T) {
	path := os.Getenv("KNOWN")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for _, line := range strings.Split(string(old), "\n") {
		name, value, _ := strings.Cut(line, " ")
		fields[name] = value
	}
	ours, err := hex.DecodeString(fields["ours"])
	if err != nil {
		t.Fatal(err)
	}
	signer, err := NewSignerFromKey(ed25519.NewKeyFromSeed(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	magics := &handshakeMagics{
		clientVersion: []byte("SSH-2.0-haul_known_answers"),
		serverVersion: []byte("SSH-2.0-Go"),
		clientKexInit: []byte("\x14client offer"),
		serverKexInit: []byte("\x14server offer, longer"),
	}
	client, server := memPipe()
	if err := client.writePacket(Marshal(&kexECDHInitMsg{ours})); err != nil {
		t.Fatal(err)
	}
	kex := &mlkem768WithCurve25519sha256{}
	result, err := kex.Server(server, rand.Reader, magics, signer.(AlgorithmSigner), "ssh-ed25519")
	if err != nil {
		t.Fatal(err)
	}
	packet, err := client.readPacket()
	if err != nil {
		t.Fatal(err)
	}
	var reply kexECDHReplyMsg
	if err := Unmarshal(packet, &reply); err != nil {
		t.Fatal(err)
	}
	result.SessionID = make([]byte, 64)
	for at := range result.SessionID {
		result.SessionID[at] = byte(100 + at)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "client-version %s\n", magics.clientVersion)
	fmt.Fprintf(&out, "server-version %s\n", magics.serverVersion)
	fmt.Fprintf(&out, "client-offer %x\n", magics.clientKexInit)
	fmt.Fprintf(&out, "server-offer %x\n", magics.serverKexInit)
	fmt.Fprintf(&out, "host-key %x\n", reply.HostKey)
	fmt.Fprintf(&out, "session-id %x\n\n", result.SessionID)
	fmt.Fprintf(&out, "name mlkem768x25519-sha256\n")
	fmt.Fprintf(&out, "secret %s\n", fields["secret"])
	fmt.Fprintf(&out, "ours %x\n", ours)
	fmt.Fprintf(&out, "theirs %x\n", reply.EphemeralPubKey)
	fmt.Fprintf(&out, "shared %x\n", result.K)
	fmt.Fprintf(&out, "hash %x\n", result.H)
	for _, letter := range "ABCDEF" {
		key := make([]byte, 100)
		generateKeyMaterial(key, []byte{byte(letter)}, result)
		fmt.Fprintf(&out, "key-%c %x\n", letter, key)
	}
	if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
