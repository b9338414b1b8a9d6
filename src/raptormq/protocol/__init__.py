"""The RocketMQ remoting protocol and record formats as pure functions of bytes: no socket, no clock, no file, no await."""
