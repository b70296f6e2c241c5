package hangup

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// Listener has the connections that l accepts watched.
func Listener(l net.Listener) net.Listener { return plain{l} }

type plain struct{ net.Listener }

func (l plain) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// TLSListener does the same above TLS, by which alone an end of the client's that it
// writes and does not make by TCP can be seen. Its connections are for http.Server's
// Serve, without a TLSConfig of the server's, and are what they would be by ServeTLS:
// HTTP/2 where the client takes it, Request.TLS set. A handshake may take as long as
// patience. Close ends those under way.
//
// net/http takes a connection for TLS by its type alone, and makes up its mind before a
// byte is read. So handshakes are done here, and HTTP/2, which needs no watch, goes on
// as the *tls.Conn that net/http wants for it.
func TLSListener(l net.Listener, config *tls.Config, patience time.Duration) net.Listener {
	config = config.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}
	s := &secured{Listener: l, config: config, patience: patience, accepted: make(chan accepted)}
	s.open, s.end = context.WithCancel(context.Background())
	go s.accept()
	return s
}

type secured struct {
	net.Listener
	config   *tls.Config
	patience time.Duration
	accepted chan accepted
	open     context.Context // done when the listener is closed
	end      context.CancelFunc
}

type accepted struct {
	conn net.Conn
	err  error
}

func (s *secured) Accept() (net.Conn, error) {
	select {
	case a := <-s.accepted:
		return a.conn, a.err
	case <-s.open.Done():
		return nil, net.ErrClosed
	}
}

func (s *secured) Close() error {
	s.end()
	return s.Listener.Close()
}

// accept goes on after an error: most pass, and Serve asks again, when it thinks fit,
// after one that may.
func (s *secured) accept() {
	for {
		c, err := s.Listener.Accept()
		if err == nil {
			go s.shakeHands(tls.Server(c, s.config))
		} else if !s.hand(nil, err) {
			return
		}
	}
}

// shakeHands hands a connection on whose handshake failed as well: net/http finds the
// same error, logs it, and has a word for clients that do not speak TLS.
func (s *secured) shakeHands(c *tls.Conn) {
	ctx, cancel := context.WithTimeout(s.open, s.patience)
	defer cancel()
	var next net.Conn = c
	if c.HandshakeContext(ctx) == nil && c.ConnectionState().NegotiatedProtocol != "h2" {
		next = &securedConn{conn{Conn: c}, c.ConnectionState()}
	}
	if !s.hand(next, nil) {
		_ = c.Close()
	}
}

// hand reports whether somebody took it.
func (s *secured) hand(c net.Conn, err error) bool {
	select {
	case s.accepted <- accepted{c, err}:
		return true
	case <-s.open.Done():
		return false
	}
}

// securedConn tells net/http of its TLS, which makes it Request.TLS.
type securedConn struct {
	conn
	state tls.ConnectionState
}

func (c *securedConn) ConnectionState() tls.ConnectionState { return c.state }
