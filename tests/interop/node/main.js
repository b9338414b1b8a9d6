'use strict';

/*
 * Plays scenarios side by side and prints one line for each: "outcome " and JSON {scenario, seconds, outcome or error}.
 *
 * Arguments: address of the name server; prefix of topics and groups; "all" or names of scenarios. The exit code is 0
 * even when scenarios fail: their lines say so. ali-ons itself is found by NODE_PATH.
 */

const Cluster = require('./cluster');

const NAMES = ['Broadcasting', 'Boundaries', 'Delays', 'GroupRestart', 'Ordered', 'Produce', 'Refusals', 'Retries',
  'SqlFilter', 'TagFilter'];

async function play(name, cluster) {
  const line = { scenario: name };
  const begin = process.hrtime.bigint();
  try {
    line.outcome = await require(`./scenarios/${name}`)(cluster);
  } catch (error) {
    line.error = error.stack;
  }
  line.seconds = Number((process.hrtime.bigint() - begin) / 1000000n) / 1e3;
  process.stdout.write(`outcome ${JSON.stringify(line)}\n`);
}

async function main(nameServer, prefix, ...names) {
  const cluster = new Cluster(nameServer, prefix);
  await cluster.start();
  await Promise.all((names[0] === 'all' ? NAMES : names).map(name => play(name, cluster)));
}

main(...process.argv.slice(2)).then(
  () => process.exit(0), // clients of a failed scenario may still run
  error => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  }
);
