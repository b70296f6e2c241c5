package oidc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	maxDocument  = 1 << 20          // of what an issuer answers
	fetchTimeout = 10 * time.Second // for one answer, to its last byte
)

// newClient returns what issuers are asked with, over a transport that guards
// whom it dials. It follows no redirect: who can set one up at an issuer's address
// would choose the keys.
func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport, Timeout: fetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// get returns a document of at most 1 MiB. The error holds nothing of what was
// answered, which goes to a log.
func get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json, application/jwk-set+json")
	r.Header.Set("User-Agent", "agentgw")
	res, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s was answered with status %d", address, res.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxDocument:
		return nil, fmt.Errorf("GET %s was answered with more than %d bytes", address, maxDocument)
	}
	return b, nil
}

// discover asks an issuer where its keys are (OpenID Connect Discovery 1.0,
// section 4).
func discover(ctx context.Context, client *http.Client, issuer string) (keysAt string, err error) {
	b, err := get(ctx, client, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return "", err
	}
	var says struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(b, &says); err != nil {
		return "", errors.New("its configuration is not one JSON object with each member once")
	}
	if says.Issuer != issuer { // section 4.3: exactly, or it may speak for another
		return "", errors.New("its configuration is of another issuer")
	}
	at, err := url.Parse(says.Keys)
	if err != nil || at.Host == "" || at.User != nil || at.Scheme != "https" && (at.Scheme != "http" || !strings.HasPrefix(issuer, "http://")) {
		return "", errors.New("its jwks_uri is not an https URL")
	}
	return says.Keys, nil
}
