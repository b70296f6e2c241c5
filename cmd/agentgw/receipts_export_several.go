package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"agentgw/internal/receipts"
)

// oneExport is what came of exporting from one of several logs.
type oneExport struct {
	Log string `json:"log"`           // its data folder
	Out string `json:"out,omitempty"` // "": the tenant has no receipt there
	*receipts.Exported
}

// exportSeveral writes a tenant's receipts of several logs into a folder, a file for
// each log that has some, by the log's name: each has its own tree, and its own key.
func exportSeveral(ctx context.Context, logs []string, tenant string, keep func(*receipts.Record) bool, out string, progress func(done, total int64)) ([]oneExport, error) {
	names := make([]string, len(logs))
	for i, log := range logs {
		if err := noFolder(log); err != nil {
			return nil, err
		}
		origin, err := receipts.ClaimedOrigin(log)
		if err != nil {
			return nil, err
		}
		_, id, _ := strings.Cut(origin, "/")
		if id == "" || strings.ContainsAny(id, "/\\") {
			return nil, fmt.Errorf("%s: no receipt log there", log)
		}
		names[i] = filepath.Join(out, id+".export")
	}
	if err := os.MkdirAll(out, 0o700); err != nil {
		return nil, err
	}
	var list []oneExport
	for i, log := range logs {
		done, err := receipts.Export(ctx, log, tenant, keep, names[i], progress)
		switch {
		case errors.Is(err, receipts.ErrNoTenant):
			list = append(list, oneExport{Log: log})
		case err != nil:
			return nil, fmt.Errorf("%s: %w", log, err)
		default:
			list = append(list, oneExport{log, names[i], done})
		}
	}
	return list, nil
}
