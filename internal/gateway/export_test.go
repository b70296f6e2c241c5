package gateway

import (
	"crypto/tls"
	"crypto/x509"
)

// Trust makes the gateway accept the certificates of pool alone, for services
// that allow private addresses. It is called before the first call.
func (g *Gateway) Trust(pool *x509.CertPool) {
	g.private.TLSClientConfig = &tls.Config{RootCAs: pool}
}
