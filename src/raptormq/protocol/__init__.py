"""The RocketMQ remoting protocol and record formats as pure functions of bytes: no socket, clock, file or await."""
