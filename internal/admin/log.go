package admin

import (
	"errors"
	"io/fs"
	"net/http"

	"agentgw/internal/secret"
)

// Log is the receipt log as an auditor fetches it. What is not there is an
// fs.ErrNotExist. Safe for concurrent use.
type Log interface {
	// Checkpoint is the newest signed one, VerifierKey what checks it.
	Checkpoint() []byte
	VerifierKey() string
	// TreeCheckpoint and Tile are of a tenant's tree, by the id at the end of its
	// origin; Tile for "" of the log's own. The path is that of
	// https://c2sp.org/tlog-tiles below tile/.
	TreeCheckpoint(tree string) ([]byte, error)
	Tile(tree, path string) ([]byte, error)
}

// receiptLog is /v1/log/: the log, and each tenant's tree below t/, under the paths of
// https://c2sp.org/tlog-tiles, which any client of such logs can follow. There are no
// entries: they are of tenants, and an auditor of them all has the folder.
// Checkpoint and key are open here too, as on the agents' side.
func receiptLog(mux *http.ServeMux, token secret.Text, log Log) {
	mux.HandleFunc("GET /v1/log/checkpoint", func(w http.ResponseWriter, _ *http.Request) { plain(w, log.Checkpoint()) })
	mux.HandleFunc("GET /v1/log/key", func(w http.ResponseWriter, _ *http.Request) { plain(w, []byte(log.VerifierKey()+"\n")) })

	inner := http.NewServeMux()
	tile := func(w http.ResponseWriter, r *http.Request) {
		data, err := log.Tile(r.PathValue("tree"), r.PathValue("path"))
		if failed(w, err) {
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
		_, _ = w.Write(data) // who asked may be gone
	}
	inner.HandleFunc("GET /v1/log/tile/{path...}", tile)
	inner.HandleFunc("GET /v1/log/t/{tree}/tile/{path...}", tile)
	inner.HandleFunc("GET /v1/log/t/{tree}/checkpoint", func(w http.ResponseWriter, r *http.Request) {
		signed, err := log.TreeCheckpoint(r.PathValue("tree"))
		if !failed(w, err) {
			plain(w, signed)
		}
	})
	inner.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { failed(w, fs.ErrNotExist) })
	mux.Handle("/v1/log/", authorized(token, inner))
}

func plain(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(text)
}

// failed answers what could not be given, and reports whether that is so.
func failed(w http.ResponseWriter, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, fs.ErrNotExist):
		fail(w, problem{Status: http.StatusNotFound, Code: "not_found", Detail: "the log has nothing at this path"})
	default:
		fail(w, problem{Status: http.StatusInternalServerError, Code: "internal", Detail: err.Error()})
	}
	return true
}
