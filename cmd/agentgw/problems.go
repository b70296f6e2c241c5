package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"agentgw/internal/config"
	"agentgw/internal/registry"
	extra "agentgw/internal/rules"
	"agentgw/internal/vault"
)

// What is wrong is found in several steps: in the file, in the settings, in the
// two together, in what the settings name. None of them stops the next, which
// works on what could be read; all that they find is one list.

// problemsOf returns what an error of the registry or of the settings lists. Of
// any other it is nil.
func problemsOf(err error) registry.Problems {
	var inRegistry registry.Problems
	if errors.As(err, &inRegistry) {
		return inRegistry
	}
	var inSettings config.Problems
	var list registry.Problems
	if errors.As(err, &inSettings) {
		for _, p := range inSettings {
			list = append(list, problemAt(p.Where, p.Name, p.What))
		}
	}
	return list
}

// problemAt is a problem of a setting: outside a file, where is flag or
// environment, and the path its name there.
func problemAt(where, name, what string) registry.Problem {
	return registry.NewProblem(registry.ParsePosition(where), name, what)
}

// together finds limits of the file and of the settings that must not be run
// with together, as far as both could be read.
func together(snapshot *registry.Snapshot, settings *config.Settings) registry.Problems {
	if snapshot == nil || settings == nil {
		return nil
	}
	d := defaults(settings)
	if !settings.Sure("AGENTGATE_RATE_KEY_RPS", "AGENTGATE_RATE_KEY_BURST") {
		d.KeyRPS, d.KeyBurst = 1, 1 // which is nothing to complain of
	}
	if !settings.Sure("AGENTGATE_RATE_TENANT_RPS", "AGENTGATE_RATE_TENANT_BURST") {
		d.TenantRPS, d.TenantBurst = 0, 0
	}
	_, err := snapshot.Effective(d)
	return problemsOf(err)
}

// misruled finds what is wrong with the expressions of the file's rules, as far as
// it could be read.
func misruled(snapshot *registry.Snapshot) registry.Problems {
	_, err := extra.Compile(snapshot)
	return problemsOf(err)
}

// unfitToStart finds what only a start looks at, and before it makes or takes
// anything: the vault key, its form, the operators' token, and the certificate.
func unfitToStart(settings *config.Settings) (list registry.Problems) {
	if settings == nil {
		return nil
	}
	blame := func(variable string, err error) {
		source := settings.Source(variable) // of what was given: a place, which may hold spaces, and the name there
		i := strings.LastIndexByte(source, ' ')
		problem := problemAt(source[:i], source[i+1:], "")
		// Unmasked: none of these repeats a secret, and the name of a file, which
		// may look like one, is what somebody has to find.
		problem.What = err.Error()
		list = append(list, problem)
	}
	if !settings.VaultKey.Empty() {
		kek, err := vault.ParseKEK(settings.VaultKey.Reveal())
		if err == nil {
			err = kek.Guessable()
		}
		if err != nil {
			blame("AGENTGATE_VAULT_KEY", err)
		}
	}
	if settings.VaultKey.Empty() && !settings.DatabaseURL.Empty() && settings.Sure("AGENTGATE_VAULT_KEY", "AGENTGATE_VAULT_KEY_FILE") {
		blame("AGENTGATE_DATABASE_URL", errors.New("needs AGENTGATE_VAULT_KEY or AGENTGATE_VAULT_KEY_FILE, the same for all that share the database: one that a process made for itself would open nothing of the others'"))
	}
	if !settings.VaultKeyPrevious.Empty() {
		if _, err := vault.ParseKEK(settings.VaultKeyPrevious.Reveal()); err != nil {
			blame("AGENTGATE_VAULT_KEY_PREVIOUS", err)
		}
	}
	if !settings.AdminToken.Empty() && settings.Sure("AGENTGATE_ADMIN_LISTEN") {
		if err := checkAdminToken(settings); err != nil {
			blame("AGENTGATE_ADMIN_TOKEN", err)
		}
	}
	if settings.TLSCertFile != "" && settings.TLSKeyFile != "" && settings.Sure("AGENTGATE_TLS_CERT_FILE", "AGENTGATE_TLS_KEY_FILE") {
		if _, err := tls.LoadX509KeyPair(settings.TLSCertFile, settings.TLSKeyFile); err != nil {
			blame("AGENTGATE_TLS_CERT_FILE", fmt.Errorf("%s with its key %s: %w", settings.TLSCertFile, settings.TLSKeyFile, err))
		}
	}
	return list
}

// exitCodeOf is how a command ends that these keep from running. The value of a
// flag is a mistake in the command line; what lies in a file that a flag names
// is none, and nor is a file that cannot be read.
func exitCodeOf(problems registry.Problems) int {
	for _, p := range problems {
		if p.File == "flag" && !strings.HasSuffix(p.Path, "-file") {
			return exitUsage
		}
	}
	return exitCannotRun
}
