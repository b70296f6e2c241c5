package gateway_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"agentgw/internal/config"
)

// overHTTP2 serves the gateway of g over TLS with HTTP/2 as well.
func overHTTP2(t *testing.T, g *world) (address string, pool *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(g.gateway.Handler())
	s.EnableHTTP2 = true
	s.Config.ErrorLog = nothing
	s.StartTLS()
	t.Cleanup(s.Close)
	pool = x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s.Listener.Addr().String(), pool
}

// field is a header field as it is written, whatever it is worth.
type field struct{ name, value string }

// http2Answer is what became of a request: its status and code, or how the
// stream or the connection ended.
func http2Answer(t *testing.T, address string, pool *x509.CertPool, fields []field, body string) string {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, ServerName: "example.com", NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range fields {
		if err := encoder.WriteField(hpack.HeaderField{Name: f.name, Value: f.value}); err != nil {
			t.Fatal(err)
		}
	}
	frames := http2.NewFramer(c, c)
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = io.WriteString(c, http2.ClientPreface)
	err = errors.Join(err, frames.WriteSettings(), frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: body == ""}))
	if body != "" {
		err = errors.Join(err, frames.WriteData(1, true, []byte(body)))
	}
	if err != nil {
		t.Fatal(err)
	}
	told := ""
	for {
		frame, err := frames.ReadFrame()
		if err != nil {
			return told + "closed"
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if status := f.PseudoValue("status"); status != "" {
				told = status
			}
			for _, h := range f.RegularFields() {
				if h.Name == "agentgate-code" {
					told += " " + h.Value
				}
			}
			if f.StreamEnded() {
				return told
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				return told
			}
		case *http2.RSTStreamFrame:
			if told != "" && f.ErrCode == http2.ErrCodeNo {
				return told // answered, and the rest of the request is not wanted
			}
			return "reset"
		case *http2.GoAwayFrame:
			return "closed"
		}
	}
}

// TestHTTP2Requests: over HTTP/2 the same travels as over HTTP/1, and a request
// that would be another one in HTTP/1 (RFC 9113, section 8.2 and 8.3) is none.
func TestHTTP2Requests(t *testing.T) {
	w := newWire(t, "", says(helloBytes))
	g := headeredWorld(t, w)
	address, pool := overHTTP2(t, g)
	ordinary := func(more ...field) []field {
		return append([]field{{":method", "POST"}, {":scheme", "https"}, {":path", "/v1/act"}, {":authority", "evil.example"}, {"authorization", "Bearer " + g.keys["k"]}}, more...)
	}
	without := func(name string) []field {
		return slices.DeleteFunc(ordinary(), func(f field) bool { return f.name == name })
	}

	var more []field
	for _, line := range hostile {
		name, value, _ := strings.Cut(line, ": ")
		switch name = strings.ToLower(name); name {
		case "proxy-connection", "keep-alive", "upgrade":
		case "te":
			more = append(more, field{"te", "trailers"})
		default:
			more = append(more, field{name, value})
		}
	}
	if got := http2Answer(t, address, pool, ordinary(more...), `{"service":"bearer","action":"get"}`); got != "200" {
		t.Fatalf("an ordinary request: %s", got)
	}
	got := withoutID(t, w)
	slices.Sort(got[3:])
	want := []string{"GET /x HTTP/1.1", "Host: " + w.listener.Addr().String(), "User-Agent: agentgw/test", "Accept-Encoding: identity", "Accept-Language: de", "Accept: text/plain", "Authorization: Bearer u:s3cr3t+&",
		"Idempotency-Key: once", "Last-Event-Id: 7", "Te: trailers", "Traceparent: 00-1-2-03", "Tracestate: a=b", "X-Request-Id: ID"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	for _, c := range []struct {
		name   string
		fields []field
		body   string
		want   []string
	}{
		{"an underscore", ordinary(field{"x_forwarded_for", "1.2.3.4"}), bareCall, []string{"400 bad_request"}},
		{"connection", ordinary(field{"connection", "authorization"}), bareCall, []string{"400", "reset"}},
		{"an encoding", ordinary(field{"transfer-encoding", "chunked"}), bareCall, []string{"400", "reset"}},
		{"an upgrade", ordinary(field{"upgrade", "h2c"}), bareCall, []string{"400", "reset"}},
		{"te", ordinary(field{"te", "gzip"}), bareCall, []string{"400", "reset"}},
		{"a capital letter", ordinary(field{"X-Upper", "1"}), bareCall, []string{"reset", "closed"}},
		{"a control byte in a name", ordinary(field{"x-\x01", "1"}), bareCall, []string{"reset", "closed"}},
		{"a space in a name", ordinary(field{"x y", "1"}), bareCall, []string{"reset", "closed"}},
		{"a line end in a value", ordinary(field{"x-y", "1\r\nhost: evil"}), bareCall, []string{"reset", "closed"}},
		{"a NUL in a value", ordinary(field{"x-y", "\x00"}), bareCall, []string{"reset", "closed"}},
		{"a pseudo-header that is none", ordinary(field{":x", "1"}), bareCall, []string{"reset", "closed"}},
		{"two authorities", append([]field{{":authority", "a"}}, ordinary()...), bareCall, []string{"reset", "closed"}},
		{"two paths", append([]field{{":path", "/v1/whoami"}}, ordinary()...), bareCall, []string{"reset", "closed"}},
		{"no path", without(":path"), bareCall, []string{"reset", "closed"}},
		{"no method", without(":method"), bareCall, []string{"reset", "closed"}},
		{"a path with a space", append(without(":path")[:2], field{":path", "/v1/act HTTP/1.1"}, field{"authorization", "Bearer " + g.keys["k"]}), bareCall, []string{"404 bad_request", "400", "reset"}},
		{"a length that is too small", ordinary(field{"content-length", "4"}), bareCall, []string{"reset", "closed", "400 bad_request"}},
		{"a length that is too large", ordinary(field{"content-length", "400"}), bareCall, []string{"reset", "closed", "400 bad_request"}},
		{"a length over the limit", ordinary(field{"content-length", "52428800"}), bareCall, []string{"reset", "413 body_too_large"}},
		{"two lengths", ordinary(field{"content-length", "33"}, field{"content-length", "4"}), bareCall, []string{"400 bad_request"}},
		{"a GET with content", []field{{":method", "GET"}, {":scheme", "https"}, {":path", "/proxy/bare/x"}, {":authority", "g"}, {"authorization", "Bearer " + g.keys["k"]}}, "x", []string{"400 bad_request"}},
		{"a look with content", []field{{":method", "GET"}, {":scheme", "https"}, {":path", "/v1/whoami"}, {":authority", "g"}, {"authorization", "Bearer " + g.keys["k"]}}, "x", []string{"400 bad_request"}},
		{"a bad key", append(without("authorization"), field{"authorization", "Bearer agw_wrong"}, field{"expect", "100-continue"}, field{"content-length", "52428800"}), bareCall, []string{"reset", "401 unauthenticated"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := http2Answer(t, address, pool, c.fields, c.body); !slices.Contains(c.want, got) {
				t.Errorf("got %q, want one of %q", got, c.want)
			}
			if got := w.take(); len(got) > 0 {
				t.Errorf("the upstream saw %q", got)
			}
		})
	}
	// Host beside :authority is what a proxy may have left; neither picks anything.
	if got := http2Answer(t, address, pool, ordinary(field{"host", "other.example"}), bareCall); got != "200" && got != "400" {
		t.Errorf("host beside :authority: %s", got)
	}
	for _, request := range w.take() {
		if got := lines(request); got[1] != "Host: "+w.listener.Addr().String() {
			t.Errorf("%q", got)
		}
	}
	if n := g.inFlight("key:k"); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}

// TestHTTP2Trailers: a trailer arrives, less what does not belong there, and
// the answer keeps its own receipt.
func TestHTTP2Trailers(t *testing.T) {
	w := newWire(t, "", says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\n{}\r\n0\r\nX-Sum: 7\r\nSet-Cookie: a=1\r\n\r\n"))
	g := headeredWorld(t, w)
	s := httptest.NewUnstartedServer(g.gateway.Handler())
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	r := g.request(t.Context(), "k", bareCall)
	r.URL.Scheme, r.URL.Host = "https", s.Listener.Addr().String()
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || string(body) != "{}" || res.ProtoMajor != 2 || res.StatusCode != 200 {
		t.Fatalf("%v %q, %v", res, body, err)
	}
	if got := fmt.Sprint(res.Trailer); got != "map[X-Sum:[7]]" {
		t.Errorf("the trailer is %s", got)
	}
}

// TestHTTP2ClientThatStopsSending: as over HTTP/1, a body that stops is a
// refusal, and a call whose body is there may take longer than the stall.
func TestHTTP2ClientThatStopsSending(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := newWire(t, "", func(c net.Conn, _ string) bool {
		<-release
		_, err := io.WriteString(c, helloBytes)
		return err == nil
	})
	const stall = time.Second
	g := setup{registry: headered(w.url()), vault: fullVault(t), settings: func(s *config.Settings) { s.ClientStall = stall }}.world(t, hello, tireless("k"))
	s := httptest.NewUnstartedServer(g.gateway.Handler())
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	post := func(body io.ReadCloser) (*http.Response, error) {
		r := g.request(t.Context(), "k", "")
		r.URL.Scheme, r.URL.Host = "https", s.Listener.Addr().String()
		r.Body, r.ContentLength, r.GetBody = body, int64(len(bareCall)), nil
		res, err := s.Client().Do(r)
		if err == nil {
			_, _ = io.ReadAll(res.Body)
			_ = res.Body.Close()
		}
		return res, err
	}
	half, stopped := io.Pipe()
	go func() { _, _ = io.WriteString(stopped, bareCall[:10]) }()
	res, err := post(half)
	if err != nil || res.StatusCode != 400 || res.ProtoMajor != 2 {
		t.Errorf("%v, %v", res, err)
	}
	_ = stopped.Close()

	began := time.Now()
	go func() {
		defer close(release)
		for t.Context().Err() == nil && (time.Since(began) < 3*stall || len(w.all()) == 0) {
			time.Sleep(time.Millisecond)
		}
	}()
	if res, err = post(io.NopCloser(strings.NewReader(bareCall))); err != nil || res.StatusCode != 200 {
		t.Errorf("%v, %v", res, err)
	}
}
