from cluster.node.cli import main

main()
