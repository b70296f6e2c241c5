package gateway

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// trailerFor is what a relayed request has to announce of the fields that its agent has
// announced to send behind the body, without what may not be one (RFC 9110, section 6.5.1)
// and what would stay here in a header, by its name or since Connection has it (section
// 7.6.1); nil: none. What was not announced stays here, too.
func trailerFor(in *http.Request) (trailer http.Header) {
	for name := range in.Trailer {
		if !httpguts.ValidTrailerHeader(name) || hopByHop(name) || stays(name) || isCredential(name) || strings.Contains(name, "_") ||
			httpguts.HeaderValuesContainsToken(in.Header["Connection"], name) {
			continue
		}
		if trailer == nil {
			trailer = http.Header{}
		}
		trailer[name] = nil
	}
	return trailer
}

// passTrailer fills in what has come of an announced trailer.
func passTrailer(to, from http.Header) {
	for name := range to {
		values := from[name]
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) || anyKey(values) {
				values = nil
				break
			}
		}
		to[name] = values
	}
}
