// Package pgaddr reads the URL that says where a PostgreSQL is, as libpq has it:
//
//	postgres://user:password@host:port/database?sslmode=verify-full&sslrootcert=FILE
//
// Several hosts stand with commas between, for target_session_attrs=read-write to find the one
// that takes changes. Parameters are those of pgx; what it does not know itself is a setting of
// the session, which the server takes or refuses.
//
// No error quotes anything of a URL but names of files: the rest may be part of a password.
package pgaddr

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// ConnectTimeout is how long one host may take to let a connection in, where the URL has no
// connect_timeout.
const ConnectTimeout = 3 * time.Second

// sslModes are what sslmode may be. prefer, libpq's own, encrypts where the server can and
// verifies nothing.
var sslModes = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

var errForm = errors.New("is not postgres://USER:PASSWORD@HOST:PORT/DATABASE")

// Parse reads a URL, and the certificates that it names. It does not connect.
func Parse(text string) (*pgx.ConnConfig, error) {
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		return nil, errForm
	}
	if strings.Contains(text, "#") {
		return nil, errors.New("has a #: in a password it is written %23")
	}
	base, query, _ := strings.Cut(text, "?")
	if _, rest, _ := strings.Cut(base, "://"); strings.Count(rest, "@") > 1 {
		return nil, errors.New("has two @: in a password it is written %40")
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("has parameters that cannot be read: they are NAME=VALUE with & between, where % is written %25")
	}
	if mode := parameters.Get("sslmode"); mode != "" && !slices.Contains(sslModes, mode) {
		return nil, fmt.Errorf("has an sslmode that is none of %s", strings.Join(sslModes, ", "))
	}
	config, err := pgx.ParseConfig(text)
	var file *fs.PathError
	switch {
	case errors.As(err, &file):
		return nil, fmt.Errorf("names a file that cannot be read: %w", file)
	case err != nil: // whose words may be of the password
		return nil, fmt.Errorf("%w that can be read: in a user or password / ? # @ : and %% are written %%2F %%3F %%23 %%40 %%3A and %%25, and a port is a number; or a certificate that a parameter names is none", errForm)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = ConnectTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "agentgw"
	}
	return config, nil
}
