from anydml.cli import main

main()
