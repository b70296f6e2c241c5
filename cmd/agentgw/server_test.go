package main

import (
	"context"
	"log/slog"
	"testing"

	"github.com/spf13/pflag"

	"agentgw/internal/config"
	"agentgw/internal/registry"
)

// TestNoTimeoutCutsAStream: the timeouts of http.Server that bound a request or
// an answer as a whole are off on the agents' side, where an answer may last for
// as long as its upstream sends and its client reads; what bounds them is
// AGENTGATE_STREAM_IDLE, AGENTGATE_STREAM_MAX and AGENTGATE_CLIENT_STALL. The
// head of a request is bounded, and so is a connection that does nothing.
func TestNoTimeoutCutsAStream(t *testing.T) {
	snapshot, err := registry.Parse("r.yaml", []byte("version: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("t", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse([]string{"--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	settings, err := config.Load(flags, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := start(settings, snapshot, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop(context.Background())
	if s.agents.WriteTimeout != 0 || s.agents.ReadTimeout != 0 {
		t.Errorf("agents: an answer may last %v, a request %v; want no bound", s.agents.WriteTimeout, s.agents.ReadTimeout)
	}
	if !s.agents.DisableGeneralOptionsHandler {
		t.Error("agents: net/http answers OPTIONS * to anybody")
	}
	if s.agents.ReadHeaderTimeout <= 0 || s.agents.IdleTimeout <= 0 {
		t.Errorf("agents: a head may take %v, a connection may do nothing for %v; want bounds", s.agents.ReadHeaderTimeout, s.agents.IdleTimeout)
	}
}
