package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"agentgw/internal/config"
	"agentgw/internal/registry"
)

func (c *cli) serveCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway",
		Args:  noArguments("name the registry with --registry FILE"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				if cmd.Flags().Changed("log-format") {
					return errors.New("--json is --log-format json: give one of them")
				}
				if err := cmd.Flags().Set("log-format", "json"); err != nil {
					return err
				}
			}
			settings, snapshot, err := c.settings(cmd)
			if err != nil {
				return err
			}
			signals := takeSignals()
			defer signals.release()
			s, err := start(settings, snapshot, func() (*config.Settings, *registry.Snapshot, error) {
				return c.readSettings(cmd, toReload)
			}, c.logger(settings))
			if err != nil {
				return exit(exitCannotRun, err)
			}
			c.sayStarted(s)
			return c.untilStopped(s, signals)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "log as JSON, also to a terminal")
	addSettingsFlags(cmd)
	return cmd
}

// sayStarted tells where the gateway listens. The first key itself is shown
// only to somebody who is looking: standard error may be a log collector.
func (c *cli) sayStarted(s *server) {
	s.log.Info("serving", "agents", s.agentsListener.Addr().String(), "admin", s.operatorsListener.Addr().String(),
		"registry", s.settings.Registry, "data", s.settings.DataDir, "limits", s.limitsAre())
	c.tellSupervisor(s, stateReady)
	if s.firstKey.Empty() {
		return
	}
	if c.logsJSON(s.settings) {
		s.log.Warn("made a first key for everything", "file", s.firstKeyFile)
		return
	}
	fmt.Fprintf(c.stderr, "agentgw: made a first key for everything; it is in %s\n", s.firstKeyFile)
	if isTerminal(c.stderr) {
		fmt.Fprintf(c.stderr, "agentgw: the key is %s\n", s.firstKey.Reveal())
	}
}

func (c *cli) tellSupervisor(s *server, state string) {
	if err := tellSupervisor(c.environ, state); err != nil {
		s.log.Warn("systemd could not be told", "state", state, "error", err)
	}
}

// signals are what a running gateway is told by. They are taken before it
// starts: one that came after it was ready and before somebody listened would
// end it without a drain.
type signals struct{ stop, hangUp chan os.Signal }

func takeSignals() signals {
	s := signals{stop: make(chan os.Signal, 2), hangUp: make(chan os.Signal, 1)}
	signal.Notify(s.stop, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(s.hangUp, syscall.SIGHUP)
	return s
}

func (s signals) release() {
	signal.Stop(s.stop)
	signal.Stop(s.hangUp)
}

// untilStopped waits for a signal to stop and drains; a second one ends at
// once. SIGHUP has the registry file read again, beside all that: a signal to
// stop must not wait for a disk. Several that come meanwhile are one.
func (c *cli) untilStopped(s *server, signals signals) error {
	go func() {
		for {
			select {
			case <-s.background.Done():
				return
			case <-signals.hangUp:
				_ = operations{s}.Reload() // what is wrong is in the log
			}
		}
	}()
	for running := true; running; {
		select {
		case err := <-s.failed:
			s.stop(context.Background())
			return exit(exitCannotRun, err)
		case got := <-signals.stop:
			s.log.Info("stopping", "signal", got.String())
			c.tellSupervisor(s, stateStopping)
			running = false
		}
	}
	done := make(chan struct{})
	go func() { s.stop(context.Background()); close(done) }()
	select {
	case <-done:
		return nil
	case <-signals.stop:
		return exit(exitCannotRun, fmt.Errorf("stopped at once by a second signal"))
	}
}

func (c *cli) logger(settings *config.Settings) *slog.Logger {
	options := &slog.HandlerOptions{Level: settings.LogLevel}
	if c.logsJSON(settings) {
		return slog.New(slog.NewJSONHandler(c.stderr, options))
	}
	return slog.New(slog.NewTextHandler(c.stderr, options))
}

// logsJSON reports whether standard error is a log of JSON lines.
func (c *cli) logsJSON(settings *config.Settings) bool {
	return settings.LogFormat == "json" || settings.LogFormat == "" && !isTerminal(c.stderr)
}

// isTerminal reports whether w is a terminal that somebody may be reading.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Mode()&os.ModeDevice != 0 && f.Name() != os.DevNull
}
