package gateway

import "net/http"

// framed ends the connection after a request whose length was told by chunks.
// It may have carried a Content-Length too: net/http takes the chunks, which is
// right, and does not tell, so what is asked of that case is done for all (RFC
// 9112, section 6.1). A proxy in front that went by the length would otherwise
// have the gateway take for the next caller's request what was one body to it.
func framed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
