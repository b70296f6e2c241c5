package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/admin"
	"agentgw/internal/config"
	"agentgw/internal/gateway"
	"agentgw/internal/hangup"
	"agentgw/internal/identity"
	"agentgw/internal/oidc"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
	"agentgw/internal/registry"
	"agentgw/internal/secret"
	"agentgw/internal/store"
	"agentgw/internal/tunnel"
	"agentgw/internal/vault"
)

// server is one running gateway: every part of it, wired top to bottom by start
// and taken down bottom to top by stop.
type server struct {
	settings *config.Settings // as they were at the start
	log      *slog.Logger
	clock    clockwork.Clock
	replica  string

	store     *store.Store
	vault     *vault.Vault
	tokens    *vault.Tokens
	endpoints map[bool]*http.Transport // to token endpoints, by whether they may be private
	salts     *vault.Salts
	receipts  *receipts.Log
	limiter   *ratelimit.Local
	fleet     *fleet         // nil: limits are of this process
	shipping  *fleetReceipts // nil: nobody lists this replica's receipts with others'
	nanos     ratelimit.Clock
	gateway   *gateway.Gateway
	metrics   *admin.Metrics
	live      *live

	adminToken secret.Text

	certificate                       *certificate // nil: plain HTTP
	agentsListener, operatorsListener net.Listener
	agents, operators                 *http.Server

	failed        chan error
	background    context.Context
	endBackground context.CancelFunc
	draining      chan struct{}
	drains        sync.Once // closes it

	firstKey     secret.Text // made on this start, else empty
	firstKeyFile string
}

// start builds and starts a gateway that serves by settings and snapshot, and
// takes over what read returns when the registry file has changed. When it
// returns an error nothing is left running.
func start(settings *config.Settings, snapshot *registry.Snapshot, read reader, log *slog.Logger) (_ *server, err error) {
	s := &server{
		settings: settings, log: log, clock: clockwork.NewRealClock(),
		replica: rand.Text()[:12], failed: make(chan error, 2), draining: make(chan struct{}),
	}
	// net/http writes what an upstream sent unasked to the standard logger, for
	// which it has no other way, and it may be anybody's secret.
	stdlog.SetOutput(io.Discard)
	s.background, s.endBackground = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			s.close()
		}
	}()

	first, err := newRules(settings, snapshot)
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
		Clock: s.clock, Replica: s.replica, Sync: settings.ReceiptSync, Retention: settings.ReceiptRetention, Logger: log,
		OnCommit: func(n int, took time.Duration) { s.metrics.Committed(n, took.Seconds()) },
		Anchor:   settings.ReceiptAnchor, OnAnchor: s.metrics.Anchored,
	})
	if err != nil {
		return nil, err
	}
	if s.store, err = openStore(s.background, settings); err != nil {
		return nil, err
	}
	s.store.AwayChanged = stateAway(log)
	kek, err := vault.LoadKEK(s.background, kekSource(settings), s.store)
	if err != nil {
		return nil, err
	}
	if s.vault, err = vault.Load(s.background, s.store, kek); err != nil {
		return nil, err
	}
	s.endpoints = map[bool]*http.Transport{false: gateway.NewTransport(false), true: gateway.NewTransport(true)}
	s.tokens = vault.NewTokens(s.vault, s.store, s.clock, log, func(allowPrivate bool) http.RoundTripper { return s.endpoints[allowPrivate] })
	if s.salts, err = vault.LoadSalts(s.background, s.store, kek, s.clock); err != nil {
		return nil, err
	}
	s.salts.Changed = func(err error) {
		if err != nil {
			log.Error("no key can be kept for the parameters of a tenant's first receipt; until one can, calls of tenants without one are refused, or let through without a hash of them", "error", err)
			return
		}
		log.Info("keys for the parameters in receipts are kept again")
	}
	if s.adminToken, err = adminToken(settings); err != nil {
		return nil, err
	}
	// After all that a start could fail of for its secrets: a start tells of the
	// key that it has made, and of none that one before it made.
	if err := s.makeFirstKey(snapshot); err != nil {
		return nil, err
	}
	for _, err := range looseSecrets(settings.DataDir) {
		log.Warn("a secret can be read by others", "error", err)
	}

	s.nanos = ratelimit.NewClock(s.clock)
	s.limiter = ratelimit.NewLocal(ratelimit.Options{
		TableSize: settings.RateTableSize, Idle: settings.RateIdle, Clock: s.nanos,
		Epoch:  s.clock.Now().UnixNano() - s.nanos.Nanos(),
		Warn:   func(table string) { log.Warn("a limiter table is full; new entries share one", "table", table) },
		Leaked: func(partition string) { log.Error("a slot was lost without a release", "partition", partition) },
	})
	var limiter gateway.Limiter = s.limiter
	if !settings.RedisURL.Empty() {
		if s.fleet, err = newFleet(settings, s.limiter, s.replica, s.clock, log); err != nil {
			return nil, err
		}
		limiter = s.fleet.limiter
	}
	budgets := tunnel.NewBudgets(settings.RateTableSize, func() {
		log.Warn("a limiter table is full; new entries share one", "table", ratelimit.KindTunnelBytes.String())
	})
	var counter tunnel.Counter = budgets
	if s.fleet != nil {
		counter = tunnel.NewFleet(lender{s.fleet.limiter}, budgets)
	}
	s.gateway = gateway.New(gateway.Parts{
		Limiter: limiter, Nanos: s.nanos, Receipts: s.receipts, Vault: s.tokens, Connector: vault.NewLinks(s.store, s.tokens, kek),
		Clock: s.clock, Log: log, Replica: s.replica, Elsewhere: s.fleet != nil, UserAgent: "agentgw/" + buildVersion(),
		Budgets: counter,
		Salts:   s.salts, Pseudonyms: identity.NewPseudonyms(kek.DeriveKey("foreign-credentials")), Tokens: oidc.NewIssuers(gateway.NewTransport, s.clock, log),
		Decided: func(service string, code gateway.Code, limit string) {
			s.metrics.Decided(service, string(code), limit)
		},
		Answered:   func(service string, after time.Duration) { s.metrics.Answered(service, after.Seconds()) },
		Waited:     func(end string, after time.Duration) { s.metrics.Waited(end, after.Seconds()) },
		Unrecorded: s.metrics.Unrecorded, Observed: s.metrics.Observed,
	})
	s.live = &live{
		started: settings, read: read, store: s.store, vault: s.vault, salts: s.salts, kek: kek, gateway: s.gateway, clock: s.clock, log: log, inForce: s.metrics.RegistryInForce, keep: s.metrics.Keep,
	}
	if err := s.live.begin(s.background, first); err != nil {
		return nil, err
	}
	s.metrics.Collect(&limiterCollector{s.limiter, s.nanos, s.gateway.NamedTenants, s.live.rules})
	s.metrics.Collect(&receiptsCollector{s.receipts, s.recording})
	go s.live.watchStore(s.background)
	go s.store.Listen(s.background, s.clock, statePushed(log))
	go s.live.keepUses(s.background)
	if read != nil {
		go s.live.watchFile(s.background)
	}
	go s.sweep()
	if s.fleet != nil {
		go s.fleet.run(s.background)
		s.metrics.Collect(&fleetCollector{s.fleet})
	}
	if !settings.DatabaseURL.Empty() {
		if s.shipping, err = newFleetReceipts(settings, s.receipts, s.clock, log); err != nil {
			return nil, err
		}
		s.shipping.run(s.background)
		s.metrics.Collect(&indexCollector{s.shipping.shipper})
		s.metrics.Collect(&stateCollector{s.store})
	}
	s.accept()
	return s, nil
}

// sweep lets idle limiter entries go, a few at a time, and has the receipt log look
// at its disk.
func (s *server) sweep() {
	ticker := s.clock.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-s.background.Done():
			return
		case <-ticker.Chan():
			s.limiter.Sweep(s.nanos.Nanos())
			s.receipts.Look()
		}
	}
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
		return fmt.Errorf("%s: %w%s", s.settings.Place("AGENTGATE_LISTEN"), err, elsewhere(err, "--listen"))
	}
	if s.operatorsListener, err = net.Listen("tcp", s.settings.AdminListen); err != nil {
		return fmt.Errorf("%s: %w%s", s.settings.Place("AGENTGATE_ADMIN_LISTEN"), err, elsewhere(err, "--admin-listen"))
	}
	return nil
}

// elsewhere says what to do about an address that another process has.
func elsewhere(err error, flag string) string {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return ""
	}
	return "; another process has it: end that, or give another address with " + flag
}

// accept starts to answer on what bind has taken.
func (s *server) accept() {
	quiet := slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	s.agents = &http.Server{
		Handler: s.gateway.Handler(), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: quiet,
		DisableGeneralOptionsHandler: true, // it would answer OPTIONS * to anybody
	}
	s.operators = &http.Server{
		Handler: admin.Handler(s.metrics, s.adminToken, operations{s}), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, WriteTimeout: 30 * time.Second, ErrorLog: quiet,
	}
	// Without TLS a client that begins with the preface of HTTP/2 speaks that
	// (RFC 9113, section 3.3); there is no upgrade to it.
	s.agents.Protocols = new(http.Protocols)
	s.agents.Protocols.SetHTTP1(true)
	s.agents.Protocols.SetHTTP2(true)
	s.agents.Protocols.SetUnencryptedHTTP2(true)
	agents := hangup.Listener(s.agentsListener)
	if s.certificate != nil {
		agents = hangup.TLSListener(s.agentsListener, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate.get}, s.agents.ReadHeaderTimeout)
	}
	go s.serve(func() error { return s.agents.Serve(agents) })
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
	if s.live.sealedOut.Load() {
		return vault.ErrWrongKEK
	}
	if s.live.allowsUnrecorded() {
		return nil
	}
	return s.receipts.Healthy()
}

// recording is nil while every attempt can have its receipt.
func (s *server) recording() error {
	if err := s.receipts.Healthy(); err != nil {
		return err
	}
	return s.salts.Healthy()
}

// drain takes the gateway out of service: calls under way finish, streams end at an
// event border, and new ones are refused. It may come again, and counts what is left.
func (s *server) drain() (streams, others int) {
	s.drains.Do(func() { close(s.draining) })
	streams, others = s.gateway.Drain()
	s.log.Info("draining", "streams_ended", streams, "calls_to_finish", others, "timeout", s.settings.DrainTimeout.String())
	return streams, others
}

// stop drains. What is left at the end of the drain time, or when hurry is done, is cut.
func (s *server) stop(hurry context.Context) {
	s.drain()
	ctx, cancel := context.WithTimeout(hurry, s.settings.DrainTimeout)
	defer cancel()
	if s.ended(ctx) != nil {
		s.gateway.Cut()
		last, end := context.WithTimeout(context.Background(), 2*time.Second)
		defer end()
		if s.ended(last) != nil {
			_ = s.agents.Close()
		}
	}
	s.close()
}

// ended waits until no call is under way, and takes no new connections.
func (s *server) ended(ctx context.Context) error {
	if err := s.agents.Shutdown(ctx); err != nil {
		return err
	}
	return s.gateway.Wait(ctx)
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
	if s.fleet != nil {
		s.fleet.close()
	}
	if s.tokens != nil {
		s.tokens.Close()
		for _, t := range s.endpoints {
			t.CloseIdleConnections()
		}
	}
	if s.receipts != nil {
		if err := s.receipts.Seal(); err != nil {
			s.log.Error("the receipt log could not be closed in good order", "error", err)
		}
	}
	if s.shipping != nil {
		s.shipping.close()
	}
	if s.live != nil {
		if err := s.live.writeUses(context.Background()); err != nil {
			s.log.Warn("the newest last uses of keys are lost", "error", err)
		}
	}
	if s.store != nil {
		_ = s.store.Close()
	}
}
