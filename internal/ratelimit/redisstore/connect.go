package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"agentgw/internal/redisaddr"
)

const (
	// onTheWire is how long a connection may be silent. It is not the timeout: an answer
	// that comes late is still worth more than a new connection.
	onTheWire = 50 * time.Millisecond
	// toConnect is how long a new one may take where that is more than a round trip: with
	// TLS, or by way of Sentinels. Nobody waits for it longer than a decision may take.
	toConnect = time.Second
)

// silent takes what go-redis would write to standard error by itself: what matters of it
// comes as an error too.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(silent{}) }

// connecting is how each server is spoken to.
type connecting struct {
	redisaddr.Address
	tls     *tls.Config
	timeout time.Duration
}

func (c *connecting) wire() time.Duration { return max(onTheWire, c.timeout) }

func (c *connecting) dial() time.Duration {
	if c.tls != nil || c.Kind == redisaddr.Sentinel {
		return max(toConnect, c.timeout)
	}
	return c.wire()
}

// dialer connects with TLS, and tells a connection that did not come about from TLS that did
// not; nil without TLS.
func (c *connecting) dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	if c.tls == nil {
		return nil
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, c.dial())
		defer cancel()
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := c.tls.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
		over := tls.Client(conn, config)
		if err := over.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, handshakeError{err}
		}
		return over, nil
	}
}

// server is a client of one server. Like the other it is of one connection.
func (c *connecting) server(address string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: address, Username: c.User, Password: c.Password, DB: c.DB, Dialer: c.dialer(),
		MaxRetries:            -1, // what may have run must not run twice
		ContextTimeoutEnabled: true,
		DialTimeout:           c.dial(), ReadTimeout: c.wire(), WriteTimeout: c.wire(), DialerRetries: 1,
		PoolSize:                 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // which servers that know nothing of it log
		DisableIdentity:          true,
	})
}

// master is a client of whichever server Sentinels say is the master.
func (c *connecting) master() *redis.Client {
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: c.Master, SentinelAddrs: c.Hosts, SentinelUsername: c.SentinelUser, SentinelPassword: c.SentinelPassword,
		Username: c.User, Password: c.Password, DB: c.DB, Dialer: c.dialer(),
		MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: c.dial(), ReadTimeout: c.wire(), WriteTimeout: c.wire(), DialerRetries: 1,
		PoolSize: 1, PipelinePoolSize: -1, DisableIdentity: true,
	})
}
