package identity

import (
	"encoding/base64"
	"net/http"
	"strings"
)

// ProxyCredentials are the fields in which a client of a forward proxy has its key: those
// of Proxy-Authorization, as though they had come as Authorization: Bearer. Of Basic
// (RFC 7617) it is the password, whatever the user, since that is all that a proxy's
// address can hold: http://x:KEY@gateway. Nothing else in h counts, nor does what can be
// read in two ways.
func ProxyCredentials(h http.Header) http.Header {
	fields := h["Proxy-Authorization"]
	if len(fields) == 0 {
		return nil
	}
	list := make([]string, 0, len(fields))
	for _, field := range fields {
		if password, ok := basicPassword(field); ok {
			field = "Bearer " + password
		}
		list = append(list, field)
	}
	return http.Header{"Authorization": list}
}

func basicPassword(field string) (password string, ok bool) {
	scheme, rest, _ := strings.Cut(trimSpace(field), " ")
	if !strings.EqualFold(scheme, "basic") {
		return "", false
	}
	pair, err := base64.StdEncoding.Strict().DecodeString(strings.TrimLeft(rest, " "))
	if err != nil {
		return "", false
	}
	_, password, ok = strings.Cut(string(pair), ":")
	return password, ok
}
