package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// certificate serves a certificate and key from files, and reads them again
// when either has changed: certificates are renewed far more often than a
// gateway is restarted. Files that cannot be read or do not fit together, as
// between the two writes of a renewal, leave the old pair in force. Safe for
// concurrent use.
type certificate struct {
	certFile, keyFile string
	failed            func(error) // told of a change that could not be taken over

	mu      sync.Mutex
	pair    *tls.Certificate
	version [2]stamp // of the files that were tried last
}

// stamp tells one state of a file from another.
type stamp struct {
	modified time.Time
	size     int64
}

func newCertificate(certFile, keyFile string, failed func(error)) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, failed: failed}
	c.version = c.look()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("AGENTGATE_TLS_CERT_FILE %s and AGENTGATE_TLS_KEY_FILE %s: %w", certFile, keyFile, err)
	}
	c.pair = &pair
	return c, nil
}

// look is two calls of stat, which a handshake does not notice.
func (c *certificate) look() (v [2]stamp) {
	for i, name := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(name); err == nil {
			v[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return v
}

// get is for tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.look()
	if now == c.version {
		return c.pair, nil
	}
	c.version = now
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		c.failed(err)
		return c.pair, nil
	}
	c.pair = &pair
	return c.pair, nil
}
