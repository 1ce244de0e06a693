// An SFTP server made of Go's x/crypto/ssh and github.com/pkg/sftp, for a test.
//
// Usage: main REKEY_BYTES (0: the library's own limit). Prints its port and its line of known_hosts,
// then serves any user with any password until it is killed.
package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

func main() {
	limit, err := strconv.ParseUint(os.Args[1], 10, 64)
	check(err)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	check(err)
	signer, err := ssh.NewSignerFromKey(key)
	check(err)
	config := &ssh.ServerConfig{
		Config: ssh.Config{RekeyThreshold: limit},
		PasswordCallback: func(ssh.ConnMetadata, []byte) (*ssh.Permissions, error) {
			return nil, nil
		},
	}
	config.AddHostKey(signer)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	port := listener.Addr().(*net.TCPAddr).Port
	public := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	fmt.Printf("%d [127.0.0.1]:%d %s\n", port, port, public)
	for {
		stream, err := listener.Accept()
		check(err)
		go serve(stream, config)
	}
}

func serve(stream net.Conn, config *ssh.ServerConfig) {
	connection, channels, requests, err := ssh.NewServerConn(stream, config)
	if err != nil {
		log.Print(err)
		return
	}
	defer connection.Close()
	go ssh.DiscardRequests(requests)
	for offered := range channels {
		if offered.ChannelType() != "session" {
			offered.Reject(ssh.UnknownChannelType, "only sessions")
			continue
		}
		channel, requests, err := offered.Accept()
		if err != nil {
			log.Print(err)
			return
		}
		go session(channel, requests)
	}
}

func session(channel ssh.Channel, requests <-chan *ssh.Request) {
	for request := range requests {
		// The payload is a string of RFC 4251.
		isSftp := request.Type == "subsystem" && len(request.Payload) > 4 && string(request.Payload[4:]) == "sftp"
		request.Reply(isSftp, nil)
		if isSftp {
			go files(channel)
		}
	}
}

func files(channel ssh.Channel) {
	defer channel.Close()
	server, err := sftp.NewServer(channel)
	check(err)
	if err := server.Serve(); err != nil && err != io.EOF {
		log.Print(err)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
