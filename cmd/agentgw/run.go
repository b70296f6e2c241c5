package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/admin"
	"agentgw/internal/config"
	"agentgw/internal/gateway"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
	"agentgw/internal/registry"
	"agentgw/internal/secret"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// server is one running gateway: every part of it, wired top to bottom by start
// and taken down bottom to top by stop.
type server struct {
	settings *config.Settings
	snapshot *registry.Snapshot
	log      *slog.Logger
	clock    clockwork.Clock
	replica  string

	store    *store.SQLite
	vault    *vault.Vault
	receipts *receipts.Log
	limiter  *ratelimit.Local
	gateway  *gateway.Gateway
	metrics  *admin.Metrics

	certificate                       *certificate // nil: plain HTTP
	agentsListener, operatorsListener net.Listener
	agents, operators                 *http.Server

	failed        chan error
	background    context.Context
	endBackground context.CancelFunc
	draining      chan struct{}

	firstKey     secret.Text // made on this start, else empty
	firstKeyFile string
}

// start builds and starts a gateway. When it returns an error nothing is left
// running.
func start(settings *config.Settings, snapshot *registry.Snapshot, log *slog.Logger) (_ *server, err error) {
	s := &server{
		settings: settings, snapshot: snapshot, log: log, clock: clockwork.NewRealClock(),
		replica: rand.Text()[:12], failed: make(chan error, 2), draining: make(chan struct{}),
	}
	s.background, s.endBackground = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			s.close()
		}
	}()

	effective, err := snapshot.Effective(defaults(settings))
	if err != nil {
		return nil, err
	}
	if err := s.bind(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(settings.DataDir, 0o700); err != nil {
		return nil, err
	}
	s.metrics = admin.NewMetrics()
	s.receipts, err = receipts.Open(settings.DataDir, receipts.Options{
		Clock: s.clock, Replica: s.replica, Sync: settings.ReceiptSync, Logger: log,
		OnCommit: func(n int, took time.Duration) { s.metrics.Committed(n, took.Seconds()) },
	})
	if err != nil {
		return nil, err
	}
	if s.store, err = store.Open(s.background, settings.DataDir); err != nil {
		return nil, err
	}
	if err := s.makeFirstKey(); err != nil {
		return nil, err
	}
	kek, err := vault.LoadKEK(s.background, vault.KEKSource{Value: settings.VaultKey, Folder: settings.DataDir}, s.store)
	if err != nil {
		return nil, err
	}
	if s.vault, err = vault.Load(s.background, s.store, kek); err != nil {
		return nil, err
	}
	if err := adminToken(settings); err != nil {
		return nil, err
	}

	nanos := ratelimit.NewClock(s.clock)
	s.limiter = ratelimit.NewLocal(ratelimit.Options{
		TableSize: settings.RateTableSize, Idle: settings.RateIdle, MaxInFlight: int64(settings.MaxInflight), Clock: nanos,
		Warn:   func(table string) { log.Warn("a limiter table is full; new entries share one", "table", table) },
		Leaked: func(partition string) { log.Error("a slot was lost without a release", "partition", partition) },
	})
	s.metrics.Collect(newLimiterCollector(s.limiter, nanos, slices.Collect(maps.Keys(snapshot.Tenants))))
	paramsKey := kek.DeriveKey("receipt params")
	s.gateway, err = gateway.New(gateway.Parts{
		Settings: settings, Limiter: s.limiter, Nanos: nanos, Receipts: s.receipts, Vault: s.vault,
		Clock: s.clock, Log: log, Replica: s.replica, UserAgent: "agentgw/" + buildVersion(),
		ParamsKey: paramsKey[:],
		Decided: func(service string, code gateway.Code, limit string) {
			s.metrics.Decided(service, string(code), limit)
		},
		Answered: func(service string, after time.Duration) { s.metrics.Answered(service, after.Seconds()) },
	})
	if err != nil {
		return nil, err
	}
	if err := s.refresh(effective); err != nil {
		return nil, err
	}
	go s.store.Watch(s.background, s.clock, time.Second, func(int64) error {
		return s.refresh(effective)
	}, func(err error) {
		log.Warn("a change of keys or credentials could not be taken over; the old ones hold", "error", err)
	})
	go s.sweep(nanos)
	s.accept()
	return s, nil
}

// refresh takes over the keys and credentials that the store holds now.
func (s *server) refresh(effective *registry.Effective) error {
	stored, err := s.store.Keys(s.background)
	if err != nil {
		return err
	}
	keys, shadowed := allKeys(s.snapshot.Keys, stored)
	for _, id := range shadowed {
		s.log.Warn("a key of the state store has the id of a key in the registry and is not served", "key", id)
	}
	directory, err := identity.NewDirectory(keys)
	if err != nil {
		return err
	}
	if err := s.vault.Reload(s.background); err != nil {
		return err
	}
	return s.gateway.Use(s.snapshot, effective, directory)
}

// sweep lets idle limiter entries go, a few at a time.
func (s *server) sweep(nanos ratelimit.Clock) {
	ticker := s.clock.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-s.background.Done():
			return
		case <-ticker.Chan():
			s.limiter.Sweep(nanos.Nanos())
		}
	}
}

// makeFirstKey makes one key for everything when there is none at all: a
// gateway that nobody can call helps nobody.
func (s *server) makeFirstKey() error {
	stored, err := s.store.Keys(s.background)
	if err != nil || len(stored) > 0 || len(s.snapshot.Keys) > 0 {
		return err
	}
	text, digest := identity.NewKey()
	s.firstKeyFile = filepath.Join(s.settings.DataDir, "first-key")
	// The file first: a key in the store that nobody has would be lost for ever.
	if err := os.WriteFile(s.firstKeyFile, []byte(text.Reveal()+"\n"), 0o600); err != nil {
		return err
	}
	s.firstKey = text
	return s.store.AddKey(s.background, store.Key{
		ID: "first", Digest: digest, Services: []string{"*"}, Users: []string{"*"}, CreatedAt: s.clock.Now(),
	})
}

// adminToken makes the operators' token on a first start.
func adminToken(settings *config.Settings) error {
	if !settings.AdminToken.Empty() {
		return nil
	}
	file := filepath.Join(settings.DataDir, "admin-token")
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	return os.WriteFile(file, []byte(rand.Text()+rand.Text()+"\n"), 0o600)
}

// bind takes the addresses and reads the certificate, before anything is made
// that a start that fails would leave behind.
func (s *server) bind() (err error) {
	if s.settings.TLSCertFile != "" {
		s.certificate, err = newCertificate(s.settings.TLSCertFile, s.settings.TLSKeyFile, func(err error) {
			s.log.Error("the changed certificate cannot be used; the old one stays", "error", err)
		})
		if err != nil {
			return err
		}
	}
	if s.agentsListener, err = net.Listen("tcp", s.settings.Listen); err != nil {
		return fmt.Errorf("AGENTGATE_LISTEN (%s): %w", s.settings.Source("AGENTGATE_LISTEN"), err)
	}
	if s.operatorsListener, err = net.Listen("tcp", s.settings.AdminListen); err != nil {
		return fmt.Errorf("AGENTGATE_ADMIN_LISTEN (%s): %w", s.settings.Source("AGENTGATE_ADMIN_LISTEN"), err)
	}
	return nil
}

// accept starts to answer on what bind has taken.
func (s *server) accept() {
	quiet := slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	s.agents = &http.Server{
		Handler: s.gateway.Handler(), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: quiet,
	}
	s.operators = &http.Server{
		Handler: admin.Handler(s.metrics, s.ready), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, WriteTimeout: 30 * time.Second, ErrorLog: quiet,
	}
	if s.certificate != nil {
		s.agents.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate.get}
	}
	go s.serve(func() error {
		if s.certificate == nil {
			return s.agents.Serve(s.agentsListener)
		}
		return s.agents.ServeTLS(s.agentsListener, "", "")
	})
	go s.serve(func() error { return s.operators.Serve(s.operatorsListener) })
}

func (s *server) serve(run func() error) {
	if err := run(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		s.failed <- err
	}
}

func (s *server) ready() error {
	select {
	case <-s.draining:
		return errors.New("draining")
	default:
	}
	return s.receipts.Healthy()
}

// stop drains: calls under way finish, streams end at an event border, and what
// is left at the end of the drain time, or when hurry is done, is cut.
func (s *server) stop(hurry context.Context) {
	close(s.draining)
	s.gateway.Drain()
	ctx, cancel := context.WithTimeout(hurry, s.settings.DrainTimeout)
	defer cancel()
	if s.agents.Shutdown(ctx) != nil {
		s.gateway.Cut()
		last, end := context.WithTimeout(context.Background(), 2*time.Second)
		defer end()
		if s.agents.Shutdown(last) != nil {
			_ = s.agents.Close()
		}
	}
	s.close()
}

// close lets everything go that start has made, in whatever state it is.
func (s *server) close() {
	s.endBackground()
	if s.operators != nil {
		_ = s.operators.Close()
	} else if s.operatorsListener != nil {
		_ = s.operatorsListener.Close()
	}
	if s.agents != nil {
		_ = s.agents.Close()
	} else if s.agentsListener != nil {
		_ = s.agentsListener.Close()
	}
	if s.gateway != nil {
		s.gateway.Close()
	}
	if s.receipts != nil {
		if err := s.receipts.Close(); err != nil {
			s.log.Error("the receipt log could not be closed in good order", "error", err)
		}
	}
	if s.store != nil {
		_ = s.store.Close()
	}
}

// allKeys joins the registry's keys and the live ones of the state store. A
// stored key whose id or digest the registry has too is left out and named: the
// file is what the operator reads. It must not fail the whole, or a clash would
// keep every later revocation from taking effect.
func allKeys(static []*registry.Key, stored []store.Key) (keys []*identity.Key, shadowed []string) {
	ids, digests := map[string]bool{}, map[[32]byte]bool{}
	for _, k := range static {
		keys = append(keys, staticKey(k))
		ids[k.ID], digests[k.Digest] = true, true
	}
	for _, k := range stored {
		switch {
		case !k.RevokedAt.IsZero():
		case ids[k.ID] || digests[k.Digest]:
			shadowed = append(shadowed, k.ID)
		default:
			keys = append(keys, storedKey(k))
		}
	}
	return keys, shadowed
}

func staticKey(k *registry.Key) *identity.Key {
	key := &identity.Key{
		ID: k.ID, Digest: k.Digest, Services: k.Services, Actions: k.Actions, Users: k.Users, Tenant: k.Tenant,
		User: k.User, Space: k.Space, Org: k.Org, Origin: k.Pos.String(),
	}
	if k.Rate != nil {
		key.Limits = &identity.Limits{RPS: k.Rate.RPS, Burst: k.Rate.Burst}
	}
	return key
}

func storedKey(k store.Key) *identity.Key {
	key := &identity.Key{
		ID: k.ID, Digest: k.Digest, Services: k.Services, Actions: k.Actions, Users: k.Users, Tenant: k.Tenant,
		User: k.User, Space: k.Space, Org: k.Org, CreatedAt: k.CreatedAt, NotBefore: k.NotBefore, NotAfter: k.NotAfter,
		Origin: "the state store",
	}
	if k.Limits != nil {
		key.Limits = &identity.Limits{RPS: k.Limits.RPS, Burst: k.Limits.Burst}
	}
	return key
}
